OURS: dict = {}
