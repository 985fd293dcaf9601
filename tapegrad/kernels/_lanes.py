"""Constants that twins share."""

LANES = 64  # samples side by side in a twin that is written as loops over them
LOG_2_PI = 1.8378770664093454836
