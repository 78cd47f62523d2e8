"""Bundles: frozen dataclasses that kernels receive as one pointer.

Numba passes a NamedTuple field by field, nine words for each two-dimensional array, at each call that is not
inlined. A bundle is packed once into memory laid out as Numba lays out its fields, and kernels get the
address. Its fields never change after that, although the contents of arrays may, so that loads through the
pointer are invariant.
"""

import operator
import typing
from collections.abc import Callable
from dataclasses import dataclass
from enum import Flag
from functools import partial
from typing import Any, TypeVar, dataclass_transform
from zlib import crc32

import numpy as np
from numba import extending, from_dtype, types

from ringyard.compiled.interfaces import CompiledFunction, InterfaceType
from ringyard.compiled.numba_internals import AbstractTemplate, AttributeTemplate, cgutils, infer_global, ir
from ringyard.compiled.records import numba_type_of

C = TypeVar("C", bound=type)


class BundleType(types.Opaque):  # type: ignore[misc]
    """Numba type of a bundle class `name` with `fields` {field: Numba type}, in the order of the class."""

    def __init__(self, name: str, fields: dict[str, Any]) -> None:
        self.fields = fields
        # short, since it is part of the name of each kernel that receives one, in Python and in machine code
        super().__init__(name=f"{name}-{crc32(str(fields).encode()):08x}")


class BundleTupleType(types.Opaque):  # type: ignore[misc]
    """Numba type of a tuple of bundles of type `one`, of any length."""

    def __init__(self, one: BundleType) -> None:
        self.one = one
        super().__init__(name=f"Many({one.name})")


extending.register_model(BundleType)(extending.models.OpaqueModel)
extending.register_model(BundleTupleType)(extending.models.OpaqueModel)


@extending.infer_getattr
class _BundleAttribute(AttributeTemplate):  # type: ignore[misc]
    key = BundleType

    def generic_resolve(self, bundle: BundleType, name: str) -> Any:
        return bundle.fields.get(name)


def _load(builder: Any, pointer: Any) -> Any:
    """Load a value leaf by leaf, each marked as invariant."""
    kind = pointer.type.pointee
    if isinstance(kind, ir.LiteralStructType | ir.IdentifiedStructType):
        count = len(kind.elements)
    elif isinstance(kind, ir.ArrayType):
        count = kind.count
    else:
        value = builder.load(pointer)
        value.set_metadata("invariant.load", builder.module.add_metadata([]))
        return value
    whole = ir.Constant(kind, ir.Undefined)
    for i in range(count):
        whole = builder.insert_value(whole, _load(builder, cgutils.gep_inbounds(builder, pointer, 0, i)), i)
    return whole


@extending.lower_getattr_generic(BundleType)  # type: ignore[untyped-decorator]
def _get_field(context: Any, builder: Any, bundle: BundleType, value: Any, name: str) -> Any:
    word = ir.IntType(64)
    kinds = bundle.fields.values()
    parts = [word if kind == types.boolean else context.get_value_type(kind) for kind in kinds]
    pointer = builder.bitcast(value, ir.LiteralStructType(parts).as_pointer())
    index = list(bundle.fields).index(name)
    field = _load(builder, cgutils.gep_inbounds(builder, pointer, 0, index))
    if bundle.fields[name] == types.boolean:
        return builder.icmp_unsigned("!=", field, word(0))
    return field


@infer_global(operator.getitem)
class _ManyItem(AbstractTemplate):  # type: ignore[misc]
    def generic(self, arguments: Any, keywords: Any) -> Any:
        many, index = arguments
        if isinstance(many, BundleTupleType) and isinstance(index, types.Integer):
            return many.one(many, types.int64)
        return None


@extending.lower_builtin(operator.getitem, BundleTupleType, types.int64)  # type: ignore[untyped-decorator]
def _get_item(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    addresses = builder.bitcast(arguments[0], ir.IntType(64).as_pointer())
    address = _load(builder, builder.gep(addresses, [arguments[1]]))
    return builder.inttoptr(address, context.get_value_type(signature.return_type))


@extending.unbox(BundleType)  # type: ignore[untyped-decorator]
def _unbox(bundle: BundleType, value: Any, c: Any) -> Any:
    address = c.pyapi.object_getattr_string(value, bundle.name)  # other bundles have none of that name
    failed = cgutils.is_null(c.builder, address)  # a field that cannot be packed says why in Python
    pointer = cgutils.alloca_once_value(c.builder, cgutils.get_null_value(cgutils.voidptr_t))
    with c.builder.if_then(c.builder.not_(failed)):
        c.builder.store(c.pyapi.long_as_voidptr(address), pointer)
        c.pyapi.decref(address)
    return extending.NativeValue(c.builder.load(pointer), is_error=failed)


def _locate(kept: list[Any], value: Any) -> int:
    """Return where kernels find an array, function or bundle on the processor. `kept` keeps arrays."""
    if isinstance(value, np.ndarray):
        kept.append(value)
        return int(value.__array_interface__["data"][0])  # as `ctypes.data`, in a fifth of the time
    return int(value.address if isinstance(value, CompiledFunction) else value._address)


def pack_bundle(value: Any, locate: Callable[[Any], int]) -> int:
    """Pack a bundle and return its address. `locate` returns that of an array, function or bundle."""
    fields = value.numba_type.fields.items()
    parts = [_words(getattr(value, name), kind, locate) for name, kind in fields]
    return locate(np.array([word for part in parts for word in part], dtype=np.int64))


def _words(value: Any, kind: Any, locate: Callable[[Any], int]) -> list[int]:
    """Return a field as Numba lays it out, in words of 8 bytes."""
    if isinstance(kind, types.Array):
        if not value.flags.c_contiguous or value.ndim != kind.ndim:
            raise TypeError(f"expected a contiguous array of {kind.ndim} dimensions, got {value.shape}")
        if not isinstance(kind.dtype, types.Record) and from_dtype(value.dtype) != kind.dtype:
            raise TypeError(f"expected an array of {kind.dtype}, got {value.dtype}")
        return [0, 0, value.size, value.itemsize, locate(value), *value.shape, *value.strides]
    if isinstance(kind, InterfaceType):
        if not isinstance(value, CompiledFunction):
            raise TypeError(f"expected a function with an interface (`@implements`), got {value!r}")
        if value.signature != kind.signature:
            own = f"{value.python.__name__}{value.signature}"
            raise TypeError(f"expected a function {kind.signature}, got {own}")
        return [locate(value), int(value.validated)]
    if isinstance(kind, BundleType):
        return [locate(value)]
    if isinstance(kind, BundleTupleType):
        return [locate(np.array([locate(one) for one in value], dtype=np.int64))]
    if kind == types.float64:
        return [int(np.float64(value).view(np.int64))]
    return [int(value)]


@dataclass_transform(frozen_default=True, eq_default=False)
def bundle(cls: C) -> C:
    """Make a class a frozen dataclass that kernels receive as a pointer, with attributes as usual.

    Annotations say what kernels get. Fields of type `str` and flags stay in Python.
    """
    hints = typing.get_type_hints(cls, include_extras=True)
    names = list(cls.__annotations__)
    types_of = {name: hints[name] for name in names if isinstance(hints[name], type)}
    in_python = [name for name, kind in types_of.items() if issubclass(kind, str | Flag)]
    fields = {name: numba_type_of(hints[name]) for name in names if name not in in_python}
    numba_type = BundleType(f"{cls.__module__}.{cls.__qualname__}", fields)

    def pack(self: Any, name: str) -> int:
        """On the first use of the address: where the fields lie; arrays live as long as this object."""
        if name not in ("_address", numba_type.name):
            raise AttributeError(f"{cls.__name__} has no field {name!r}; it has {', '.join(names)}")
        kept: list[Any] = []
        pack_bundle(self, partial(_locate, kept))
        *_, packed = self.__dict__.setdefault("_kept", kept)  # another thread may have been first
        self.__dict__["_address"] = self.__dict__[numba_type.name] = address = int(packed.ctypes.data)
        return address

    def state(self: Any) -> dict[str, Any]:
        """Pickles and copies are packed anew, where they are."""
        return {name: getattr(self, name) for name in names}

    changed: Any = dataclass(frozen=True, eq=False)(cls)
    changed.numba_type = numba_type
    changed.many = BundleTupleType(numba_type)
    changed.__getattr__ = pack
    changed.__getstate__ = state
    changed._numba_type_ = numba_type  # where numba looks first when Python calls a kernel
    return changed
