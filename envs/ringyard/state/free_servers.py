"""An index of servers by number of free GPUs: a row of bits for each number."""

from ringyard.compiled import kernel
from ringyard.state.arrays import SERVERS_PER_WORD, State

_LOG2 = SERVERS_PER_WORD.bit_length() - 1
_LAST = SERVERS_PER_WORD - 1
_ALL = (1 << SERVERS_PER_WORD) - 1


@kernel
def _lowest_bit(word: int) -> int:
    """Return the number of the lowest bit set in `word`, which is not 0."""
    position = 0
    if word & 0xFFFF == 0:
        position = 16
        word >>= 16
    if word & 0xFF == 0:
        position += 8
        word >>= 8
    if word & 0xF == 0:
        position += 4
        word >>= 4
    if word & 0x3 == 0:
        position += 2
        word >>= 2
    return position + 1 - (word & 1)


@kernel
def _num_words(state: State) -> int:
    return (state.servers.shape[1] + _LAST) >> _LOG2


@kernel
def _flip(state: State, b: int, free: int, s: int, change: int) -> None:
    """Add server `s` to those with `free` free GPUs (change 1), or remove it (change -1)."""
    state.free_bits[b, free * _num_words(state) + (s >> _LOG2)] ^= 1 << (s & _LAST)
    state.num_with_free[b, free] += change


@kernel
def move_server(state: State, b: int, s: int, before: int, after: int) -> None:
    """Note that server `s` of cluster `b` of `state` has `after` free GPUs and no longer `before`."""
    _flip(state, b, before, s, -1)
    _flip(state, b, after, s, 1)


@kernel
def index_servers(state: State, b: int) -> None:
    """Build the index of cluster `b` of `state`."""
    state.free_bits[b] = 0
    state.num_with_free[b] = 0
    for s in range(state.servers.shape[1]):
        _flip(state, b, state.servers[b, s].free_gpus, s, 1)


@kernel
def _next_bit(state: State, b: int, row: int, flipped: int, after: int) -> int:
    """Return the first server above `after` with its bit in `row` xor `flipped` set, -1 if none."""
    num_words = _num_words(state)
    i = (after + 1) >> _LOG2
    passed = (after + 1) & _LAST
    while i < num_words:
        word = ((flipped ^ state.free_bits[b, row * num_words + i]) >> passed) << passed
        if word != 0:
            return (i << _LOG2) + _lowest_bit(word)
        passed = 0
        i += 1
    return -1


@kernel
def next_server(state: State, b: int, free: int, after: int) -> int:
    """Return the first server above `after` with `free` free GPUs in cluster `b` of `state`, -1 if none."""
    return _next_bit(state, b, free, 0, after)


@kernel
def next_with_free(state: State, b: int, after: int) -> int:
    """Return the first server above `after` with a free GPU in cluster `b` of `state`, -1 if none."""
    s = _next_bit(state, b, 0, _ALL, after)
    return s if s < state.servers.shape[1] else -1
