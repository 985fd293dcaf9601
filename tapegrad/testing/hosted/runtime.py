"""A CUDA runtime in host memory, put where CuPy's compiled modules look for the real one.

CuPy's extension modules call the CUDA runtime through `cupy_backends.cuda.api.runtime`, and find its
functions at import time in the table `__pyx_capi__` of that module: name -> capsule holding a C function
pointer and, as the capsule's name, its C signature. Before CuPy itself is imported, `replace_runtime` puts
there, for each function of the table `FUNCTIONS`, a ctypes callback of the same signature. Device memory is
then host memory, copies are memmove, streams and events are numbers, and all of CuPy's code above that level
is the real one. Functions not in the table keep their real body, which fails loudly without a driver.

`stats` counts what a device would have felt: see `hosted_cupy`.
"""

import contextlib
import ctypes
import importlib
import itertools
import re
import sys
import types

import numpy as np

GARBAGE = 0xCC  # new memory is filled with this, so that a read of cupy.empty() is noticed

stats = {"kernels": 0, "syncs": 0, "unknown": set()}

DEVICE_TO_HOST = 2  # enum cudaMemcpyKind
CAPABILITY = {75: 9, 76: 0}  # cudaDevAttrComputeCapabilityMajor, Minor: an H100 or H200
ATTRIBUTES = {
    1: 1024,
    8: 49152,
    10: 32,
    16: 132,
    39: 2048,
    82: 65536,
} | CAPABILITY  # block size, shared memory, warp, SMs, threads and registers of each

_C_TYPES = {
    "int": ctypes.c_int,
    "unsigned int": ctypes.c_uint,
    "float": ctypes.c_float,
    "size_t": ctypes.c_size_t,
    "intptr_t": ctypes.c_ssize_t,
    "PyObject *": ctypes.py_object,
}
_handles = itertools.count(0x1000)  # streams and events: any nonzero number serves
_blocks: dict[int, np.ndarray] = {}  # address -> NumPy buffer that owns it
stream_calls: list | None = (
    None  # (name, handles) of each wait for an event and each event recorded, while a test sets a list
)
_transfer_open = False  # a copy to the host was started, and the synchronise that belongs to it has not come


def reset_counts():
    global _transfer_open
    stats.update(kernels=0, syncs=0, unknown=set())
    _transfer_open = False


@contextlib.contextmanager
def uncounted():
    """What the tests themselves do on the device."""
    global _transfer_open
    before = stats.copy(), _transfer_open
    try:
        yield
    finally:
        stats.update(before[0])
        _transfer_open = before[1]


def count_kernel():
    stats["kernels"] += 1


def count_unknown(name):
    stats["unknown"].add(name)


def count_transfer():
    """One device-to-host transfer; a synchronise directly after it is part of it."""
    global _transfer_open
    stats["syncs"] += 1
    _transfer_open = True


def count_synchronize(*_):
    global _transfer_open
    if not _transfer_open:
        stats["syncs"] += 1
    _transfer_open = False
    return True


def new_buffer(size):
    buffer = np.empty(max(size, 1), np.uint8)
    buffer.fill(GARBAGE)
    return buffer


def _malloc(size, *_):
    buffer = new_buffer(size)
    _blocks[buffer.ctypes.data] = buffer
    return buffer.ctypes.data


def _free(address, *_):
    _blocks.pop(address, None)
    return True


def _memcpy(target, source, size, kind, *_):
    if kind == DEVICE_TO_HOST:
        count_transfer()
    ctypes.memmove(target, source, size)
    return True


def _memset(address, value, size, *_):
    ctypes.memset(address, value, size)
    return True


def _new_handle(*_):
    return next(_handles)


def _constant(value):
    return lambda *_: value


def _noted(name):
    """Note the call and its handles in `stream_calls`, where a test asks for it."""

    def call(*handles):
        if stream_calls is not None:
            stream_calls.append((name, *handles[:2]))
        return True

    return call


def _pointer_attributes(address, *_):
    runtime = importlib.import_module("cupy_backends.cuda.api.runtime")

    return runtime.PointerAttributes(0, address, address, 2)  # device 0, memory of the device


# Functions with a Python result are called for their effect only: they return True, because ctypes would lose
# a reference to None. eventQuery and streamQuery return a status, 0 is "done".
FUNCTIONS = {
    "_ensure_context": _constant(True),
    "getDevice": _constant(0),
    "getDeviceCount": _constant(1),
    "setDevice": _constant(True),
    "deviceGetAttribute": lambda attribute, *_: ATTRIBUTES.get(attribute, 0),
    "getDeviceProperties": _constant({"name": b"host memory", "warpSize": 32, "multiProcessorCount": 132}),
    "deviceCanAccessPeer": _constant(0),
    "deviceSynchronize": count_synchronize,
    "driverGetVersion": _constant(13000),
    "memGetInfo": _constant((1 << 36, 1 << 37)),
    "pointerGetAttributes": _pointer_attributes,
    "pointerGetMemoryType": _constant(0),  # not pinned
    "malloc": _malloc,
    "free": _free,
    "hostAlloc": _malloc,
    "freeHost": _free,
    "memcpy": _memcpy,
    "memcpyAsync": _memcpy,
    "memset": _memset,
    "memsetAsync": _memset,
    "streamCreate": _new_handle,
    "streamCreateWithFlags": _new_handle,
    "streamCreateWithPriority": _new_handle,
    "streamDestroy": _constant(True),
    "streamQuery": _constant(0),
    "streamSynchronize": count_synchronize,
    "streamWaitEvent": _noted("wait"),
    "streamIsCapturing": _constant(0),
    "eventCreate": _new_handle,
    "eventCreateWithFlags": _new_handle,
    "eventDestroy": _constant(True),
    "eventQuery": _constant(0),
    "eventRecord": _noted("record"),
    "eventSynchronize": count_synchronize,
    "eventElapsedTime": _constant(0.0),
}


def real_device():
    """True when a CUDA device answers. Asks the runtime alone: CuPy is not imported, nothing is patched."""
    try:
        runtime = importlib.import_module("cupy_backends.cuda.api.runtime")

        return getattr(runtime, "_hosted", False) is False and runtime.getDeviceCount() > 0
    except Exception:  # no CuPy, no driver, no device: the error's type depends on which
        return False


def _prototype(signature):
    """The ctypes prototype of a C signature such as "PyObject *(intptr_t, int __pyx_skip_dispatch)"."""
    result, arguments = re.fullmatch(r"(.*?) ?\((.*)\)", signature).groups()
    kinds = []
    for argument in arguments.split(", "):
        kind = argument.replace(" __pyx_skip_dispatch", "")
        if kind != "void":
            kinds.append(_C_TYPES.get(kind, ctypes.c_void_p))  # what is left: pointers to optional arguments
    return ctypes.PYFUNCTYPE(_C_TYPES.get(result, ctypes.py_object), *kinds)


def _replace_capsule(table, name, function):
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_void_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    old = table[name]
    signature = api.PyCapsule_GetName(old)
    callback = _prototype(ctypes.string_at(signature).decode())(function)
    table[name] = api.PyCapsule_New(ctypes.cast(callback, ctypes.c_void_p), signature, None)
    for held in (callback, old):  # C code may use both until the process ends: never free them
        api.Py_IncRef(ctypes.py_object(held))


def replace_runtime():
    """Put `FUNCTIONS` in place of CUDA's, for compiled callers and for Python ones."""
    if "cupy" in sys.modules:
        raise RuntimeError(
            "cupy is imported already: enter tg.testing.host_cupy() before the first import of cupy"
        )
    runtime = importlib.import_module("cupy_backends.cuda.api.runtime")

    missing = FUNCTIONS.keys() - runtime.__pyx_capi__.keys()
    if missing:
        raise RuntimeError(f"this version of CuPy has another runtime interface, without {sorted(missing)}")
    for name, function in FUNCTIONS.items():
        _replace_capsule(runtime.__pyx_capi__, name, function)
        setattr(runtime, name, function)
    runtime._hosted = True


class _StubConstant(int):
    """A constant of a library that cannot be loaded: 0. A function of it raises when it is called."""

    name = ""

    def __call__(self, *args, **settings):
        raise NotImplementedError(f"{self.name} needs a CUDA device; host_cupy() cannot run it")


class _StubModule(types.ModuleType):
    """A library that cannot be loaded here. The constants read at import time are 0."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        found = _StubConstant()
        found.name = f"{self.__name__.rpartition('.')[2]}.{name}"
        return found


def stub_libraries(names=("cublas", "cusolver", "cusparse", "curand")):
    """Let modules that import CUDA's mathematical libraries be imported without them."""
    libraries = importlib.import_module("cupy_backends.cuda.libs")

    for short in names:
        full = "cupy_backends.cuda.libs." + short
        if full not in sys.modules:
            module = sys.modules[full] = _StubModule(full)
            setattr(libraries, short, module)


def use_host_allocator():
    """Allocate every array by itself in garbage-filled host memory that is freed with the array."""
    cupy = importlib.import_module("cupy")
    memory = cupy.cuda.memory

    def allocate(size):
        buffer = new_buffer(size)
        owned = memory.UnownedMemory(buffer.ctypes.data, buffer.size, buffer, 0)
        return memory.MemoryPointer(owned, 0)

    cupy.cuda.set_allocator(allocate)
