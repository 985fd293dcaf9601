"""Thresholds of replay: what is measured in elements, bytes, operations or nanoseconds of the processor, and
decides which way is taken.

They choose between ways that give the same numbers, up to rounding.  Times are those of a model of the costs.
Three things are measured when a program runs: what calls have cost so far, how long texts take to write, and
which of two texts is faster."""

import functools

import numpy as np


@functools.cache
def has_vector_loop(name: str) -> bool:
    """Return whether NumPy does several elements of this function at once: `exp` and its like with AVX-512
    only."""
    found = np.lib.introspect.opt_func_info(func_name=f"^{name}$", signature="float64")
    ways = [of_types["current"] for of_types in found.get(name, {}).values()]
    return any(["512" in way or "V4" in way for way in ways])


# Which program is used: counts of recordings and replays.

PROGRAMS_KEPT = 8  # programs of one function
KINDS_KEPT = 256  # kinds of arguments that are known to have come
EMITTED_REPLAY = 2  # the replay for which the text is written
REPEATED_INSTRUCTIONS = 500  # of a program that is written for the first replay, if they repeat
GRAPHED_REPLAY = 3  # the replay for which a CUDA graph is made, where one is wanted
GROUP_REFUSALS = 3  # replays for which groups were of no use, before there are none
CHANGING_RECORDINGS = 2  # recordings that changed what the function reads, before it runs as it is
FREE_RECORDINGS = 4  # recordings of other kinds of calls in vain, before calls run as they are in between
VAIN_RECORDINGS = 5  # recordings in vain in a row, before the function runs as it is
CALLS_PER_RECORDING = 10  # plain calls that take about as long as a recording
UNATTEMPTED_REPLAYS = 15  # calls run as they are after others for which conditions failed, at most
REPLAYS_PER_RECORDING = 4  # replays that pay for a recording
TRIED_REPLAYS = 8  # of each of two texts, after which the faster one stays
CLEAR_REPLAYS = 3  # the same, where it takes less than half
TOLD_CALLS = 3  # calls run as they are for one reason, before a warning tells it
TOLD_WAITS = 30  # the same where another recording is not paid for
CALLS_NAMED = 5  # operations that a report names, of those that Python does
OPENED_ELEMENTS = 512  # of an operation that is recorded as those that it is made of
COMPARED_ELEMENTS = 64  # elements of a constant that is compared with others

# Memory.

POOL_BYTES = 1 << 28  # bytes of the arrays of a pool, at most
POOL_ARRAYS = 16  # arrays of a pool, at most
ARENA_BYTES = 1 << 28  # bytes of an arena that is kept for the next run
COUNTED_PLACES = 1 << 21  # integers that are kept for the places of all arenas
REUSED_BYTES = 1 << 15  # bytes of an array from which its memory is used again
CODES_KEPT = 4096  # compiled codes in a process

# Blocks: what the interpreter does rather than NumPy.  In elements, where no other unit is said.

BLOCK_ELEMENTS = 1 << 15  # of a result: NumPy does larger ones sooner
COMPLEX_BLOCK_ELEMENTS = 1 << 11  # the same of complex numbers
BUFFER_ELEMENTS = 1 << 15  # of an array that is read or written in part
BLOCK_PRODUCTS = 1 << 22  # multiplications of a matrix product
BLOCK_MATRICES = 64  # products of an instruction
BLAS_MATRIX_PRODUCTS = 200  # multiplications from which BLAS does a product of matrices
BLAS_VECTOR_PRODUCTS = 1000  # the same of a matrix and a vector
SUMMED_PRODUCTS = 4  # products of matrices that are added up, and become one
SUMMED_ELEMENTS = 16  # of such a sum
BLOCK_ROWS = 3  # rows for which a call of the interpreter pays
TRANSFER_ROWS = 0.7  # rows that pay for a value which goes in or out
COPIED_ELEMENTS = 3000  # that take as long to copy as it takes to begin
COMPLEX_ELEMENTS = 48  # from which NumPy's loops of complex numbers are faster than rows of their parts
LINE_ELEMENTS = 3  # of a line below which a table is as good
TABLED_ELEMENTS = 48  # of an operation on lines that begin anywhere
TABLED_LINE_ELEMENTS = 4  # of such a line
PAIRED_ELEMENTS = 32  # of an instruction that is one row with the next
BOX_ELEMENTS = 32  # of a box that is a row of its own
SHORT_AXIS = 4  # elements of the last axes of a stack that are its first in the memory of a block
STACK_ELEMENTS = 16  # of the other axes of such a stack, at least
BOXES = 16  # boxes of an instruction
CACHE_LINE_ELEMENTS = 8  # of a line of the cache
ALIGNED_ELEMENTS = 64  # of a value that begins at such a line
SORT_ELEMENTS = 512  # of a line: NumPy sorts longer ones by vector instructions
STABLE_SORT_ELEMENTS = 1024  # of a line that is sorted in a stable way
MATRIX_UNKNOWNS = 4  # unknowns of a system that is written out
UNBLOCKED_COLUMNS = 32  # of a matrix that LAPACK factors column by column
SMALL_FACTORS = 12  # unknowns of a matrix whose triangular factors are written out
WRITTEN_OUT_PRODUCTS = 4096  # about how many products of a system are written out

# Loops of rows that repeat.

LOOP_TRIPS = 8  # trips from which a loop pays
TRIP_ROWS_LEAST = 4  # rows of a trip, at least
TRIP_ROWS_MOST = 4000  # rows of a trip, at most
LOOP_ELEMENTS = 128  # elements of an instruction; there are other loops for more
TRIP_ELEMENTS = 4000  # elements of a trip
ALIKE_ROWS = 24  # rows that are compared first
PERIODS_TRIED = 8  # lengths that are tried in one place
PARTS_OF_A_TRIP = 4  # alike parts of a trip, as those of a step of Runge and Kutta are
CARRIED_TRIPS = 24  # trips after which a value is still read by its loop
POINTER_PLACES = 16  # places between cells of one pointer, or a step

# Groups: which instructions are one compiled loop.

GROUPED_ELEMENTS = 100  # elements from which an instruction may be part of a group
LOOP_CELLS = 25  # texts of one loop
INDEX_OPERATIONS = 20  # operations of an element that is read or added at an index
GATHERED_BYTES = 1 << 31  # bytes of an array that is read at indices
OPERAND_PLACES = 25  # places at which an operand is read
RECOMPUTED_OPERATIONS = 40  # operations of costly values that are worked out again
GROUP_OPERATIONS = 600  # operations of a group
GROUP_INSTRUCTIONS = 150  # instructions of a group
WRITTEN_OUT_TERMS = 4  # terms of a sum that are written out
COSTLY_OPERATIONS = 6  # operations from which a value is costly
FUNCTION_OPERATIONS = 30  # operations from which it is one of a function
ITEM_ELEMENTS = 4096  # elements of an item of work
VECTOR_OPERATIONS = 60  # operations from which one register holds a vector
BLOCK_THREADS = 128  # threads of a block of a device
LAUNCH_BLOCKS = 1024  # blocks of a launch, at most
TILE_ELEMENTS = 128  # elements of sums over leading axes that stay in registers, in all
TILE_OPERATIONS = 200  # operations of the vectors of such a tile
TURN_ROWS = 8  # rows of a turn
ROW_PRODUCTS = 2  # products, or sums, that read a row together
PART_BYTES = 1 << 22  # bytes of the rows of a part, at least
PARTS = 16  # parts, at most
MATRIX_BYTES = 3 << 20  # bytes of a matrix for which a loop over its rows pays
COLUMNS = 6  # columns below which they are done one by one

# Time, in ns of one thread.

# A text takes so long on a machine of 2025 that has written others. Machines and fresh processes differ by
# a factor of four, so this is corrected by what the texts of the process have taken.
WRITTEN_KIND_NS = 1e5  # to write an operation of a layout for the first time
WRITTEN_INSTRUCTION_NS = 5e4  # for each instruction
WRITTEN_ELEMENT_NS = 30  # for an element that is laid out in a block
FIRST_TEXT = 1.8  # the factor for the first text of a process
TEXT_WEIGHT = 0.3  # of the last text in the factor for the next
REPAID = 1.5  # how many times what a text costs the replays before it have cost
LOADING_NS = 9e7  # for the modules that write texts, in a process that has none yet
WRITTEN_AGAIN_NS = 6e3  # of an instruction of a text that is written anew
RECORDED_CALLS = 8  # calls as they are that take as long as a recorded one, at least
COMPILE_NS = 1e8  # that the compilation of the groups of a function may take
LOOP_BUILD_NS = 2e6  # to compile an instruction of a trip
TEXT_ELEMENT_NS = 0.5  # of an element of an instruction of the text
BLOCK_ELEMENT_NS = 0.15  # of an element of an instruction within a block
BLOCK_ROW_NS = 20  # of an instruction within a block
BLOCK_INDEX_NS = 0.7  # of an element at a constant index within a block
COMPUTED_INDEX_NS = 2.0  # of an element at an index that is computed, in a block or by NumPy
LOOPED_ROW_NS = 20  # of one of a trip, beside one of a compiled loop
REREAD_BYTE_NS = 0.06  # of a byte of a matrix that is read once more
GROUP_SHARE_NS = 500  # that an instruction of a block has to save, for its share of the call of a group
SLOW_ELEMENT_NS = 0.5  # of an element of a costly operation, of which NumPy does several at once
FUNCTION_ELEMENT_NS = 8.0  # of a function of which it does one after the other
COMPILED_FUNCTION_NS = 0.5  # the same of `exp` and its like within a block, beside one in a compiled loop
CALL_NS = 600  # of a call of NumPy
WRITE_NS = 1500  # of a write into a region
SUMMED_ROW_NS = 10  # of a row that NumPy adds up
PASS_ELEMENT_NS = 0.3  # of an element that NumPy reads and writes
OPERATION_NS = 0.05  # of an operation of an element in a compiled loop
GROUP_ENTRY_NS = 3000  # of the call of a group


def slow_element_ns(name: str, operations: int) -> float:
    """Return how many ns an element of a costly operation takes NumPy."""
    single = operations >= FUNCTION_OPERATIONS and not has_vector_loop(name)
    return FUNCTION_ELEMENT_NS if single else SLOW_ELEMENT_NS
