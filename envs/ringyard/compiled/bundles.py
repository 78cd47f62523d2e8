"""Bundles of arrays that kernels receive as one pointer.

Numba hands a NamedTuple over field by field, nine words for each two-dimensional array: a call that is not
inlined then costs more than a short kernel does, and so does every call from Python. A class decorated with
`by_reference` is packed once into memory laid out as numba lays out its fields; kernels get its address.
Fields never change after that (what arrays hold may), so that loads through the pointer are invariant.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)

from ringyard.compiled.functions import CompiledFunction

__all__ = ["ReferenceType", "address_of", "by_reference", "reference_at"]

C = TypeVar("C", bound=type)


class ReferenceType(types.Opaque):
    """Numba's view of a decorated class.

    Args:
        name: of the class.
        fields: {field: numba type}, in the order of the class.
    """

    def __init__(self, name: str, fields: dict[str, Any]) -> None:
        self.fields = fields
        super().__init__(name=f"Reference({name}: {', '.join(map(str, fields.values()))})")


register_model(ReferenceType)(models.OpaqueModel)


@infer_getattr
class _ReferenceAttribute(AttributeTemplate):  # type: ignore[misc]
    key = ReferenceType

    def generic_resolve(self, reference: ReferenceType, name: str) -> Any:
        return reference.fields.get(name)


def _load(builder: Any, pointer: Any) -> Any:
    """Load a value leaf by leaf, each marked as never changing."""
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


@lower_getattr_generic(ReferenceType)  # type: ignore[untyped-decorator]
def _get_field(context: Any, builder: Any, reference: ReferenceType, value: Any, name: str) -> Any:
    layout = ir.LiteralStructType([context.get_value_type(kind) for kind in reference.fields.values()])
    pointer = builder.bitcast(value, layout.as_pointer())
    index = list(reference.fields).index(name)
    return _load(builder, cgutils.gep_inbounds(builder, pointer, 0, index))


@unbox(ReferenceType)  # type: ignore[untyped-decorator]
def _unbox(reference: ReferenceType, value: Any, c: Any) -> Any:
    address = c.pyapi.object_getattr_string(value, "_address")
    pointer = c.pyapi.long_as_voidptr(address)
    c.pyapi.decref(address)
    return NativeValue(pointer, is_error=c.pyapi.c_api_error())


@intrinsic  # type: ignore[untyped-decorator]
def address_of(context: Any, reference: Any) -> Any:
    """The address behind a reference, as an int64: what functions take that cannot name its type."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ptrtoint(arguments[0], ir.IntType(64))

    return types.int64(reference), generate


def reference_at(cls: Any) -> Any:
    """A compiled function `address -> reference` to an instance of a decorated class."""
    reference = cls.numba_type

    @intrinsic  # type: ignore[untyped-decorator]
    def at(context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(reference))

        return reference(types.int64), generate

    return at


def _words(value: Any, kind: Any) -> list[int]:
    """A field as numba lays it out, in words of 8 bytes."""
    if isinstance(kind, types.Array):
        if not value.flags.c_contiguous or value.ndim != kind.ndim:
            raise TypeError(f"expected a contiguous array of {kind.ndim} dimensions, got {value.shape}")
        return [0, 0, value.size, value.itemsize, value.ctypes.data, *value.shape, *value.strides]
    if isinstance(kind, types.FunctionType):
        if not isinstance(value, CompiledFunction):
            raise TypeError(f"expected a CompiledFunction, got {value!r}")
        c_address, own = value.addresses
        return [c_address, 0, own]
    if isinstance(kind, ReferenceType):
        return [value._address]
    if kind == types.float64:
        return [int(np.float64(value).view(np.int64))]
    return [int(value)]


def by_reference(*kinds: Any) -> Callable[[C], C]:
    """Decorate a frozen dataclass: kernels receive its instances as pointers, attributes read as usual.

    Args:
        kinds: a numba type for each of the first fields (the others stay in Python): contiguous arrays,
            int64, float64, function types, or types of decorated classes (their `numba_type`).
    """

    def decorate(cls: C) -> C:
        names = [field.name for field in dataclasses.fields(cls)]
        fields = dict(zip(names, kinds, strict=False))
        numba_type = ReferenceType(f"{cls.__module__}.{cls.__qualname__}", fields)

        def address(self: Any) -> int:
            """Where the fields lie, packed on first use; the arrays live as long as this object."""
            packed = self.__dict__.get("_packed")
            if packed is None:
                words = [word for name, kind in fields.items() for word in _words(getattr(self, name), kind)]
                packed = np.array(words, dtype=np.int64)
                self.__dict__["_packed"] = packed
            return int(packed.ctypes.data)

        def state(self: Any) -> dict[str, Any]:
            """Pickles and copies are packed anew, where they are."""
            return {name: getattr(self, name) for name in names}

        cls.numba_type = numba_type  # type: ignore[attr-defined]
        cls._address = property(address)  # type: ignore[attr-defined]
        setattr(cls, "__getstate__", state)  # noqa: B010
        typeof_impl.register(cls)(lambda value, context: numba_type)
        return cls

    return decorate
