"""One sentence about a layer that takes long: what limits it, and what could be done."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gluonjit.profiling.measured import Layer, Program

_SMALL = 5e-6
"""Seconds; of a kernel that takes less, a large part is its start."""
_HIGH = 0.85
"""Part of the machine's peak that counts as reached: kernels do not get much nearer."""
_OF_WEIGHTS = 0.6
"""Part of the memory's rate from which on reading fewer weights is worth while."""
_ENOUGH = 5
"""Measured calls, of which fewer may all be slow for a reason that passes, such as cold caches."""
_LATE = 1.5
"""Times what the compiler expected, from which on a layer takes longer than expected; as short, it takes less."""
_SHARED = 0.25
"""Part of a layer's bytes from which on its weights are worth being read for more samples."""


def advice(layer: Layer, program: Program, peaks: tuple[float, float], busy: bool = False) -> str:
    """The sentence about a layer of a measured program. `peaks`: (FLOP/s, bytes/s) that the machine reaches on as many
    threads, 0 if unknown; `busy`: whether other programs took its cores meanwhile."""
    kernels = [program.kernels[k] for k in layer.kernels]
    main = max(kernels, key=lambda k: k.share)
    threads = max(program.usual_threads, 1)
    of_flops, of_bytes = (
        amount / layer.share / peak if peak and layer.share else 0.0
        for amount, peak in zip((layer.flops, layer.nbytes), peaks)
    )
    late = layer.share / (layer.estimate / threads) if layer.estimate else 0.0
    if layer.wait > 0.4 * layer.share:
        return (
            f"Threads wait for each other {100 * layer.wait / layer.share:.0f} % of this time: there is too little "
            "work to divide; larger batches, or fewer threads."
        )
    if main.kind == "loop":
        steps = next((k.times for k in program.kernels if k.inside == main.number), 0.0)
        return f"Its {steps:.0f} steps wait for each other; a larger batch gives each step more to compute."
    beyond = of_flops > 1 and "winograd" in main.kind
    winograd = ", as Winograd's algorithm multiplies less than is counted" if beyond else ""
    if of_flops > _HIGH and late <= _LATE:
        said = f"It computes at {100 * of_flops:.0f} % of this machine's peak"
        return f"{said}{winograd}." if winograd else f"{said}: only a smaller layer would take less."
    if _OF_WEIGHTS < of_bytes <= 1 and layer.weights > _SHARED * layer.nbytes:
        return f"It moves data at {100 * of_bytes:.0f} % of the memory's rate: more samples would share the weights."
    if _HIGH < of_bytes <= 1:
        return f"It moves data at {100 * of_bytes:.0f} % of the memory's rate: only smaller arrays take less."
    if layer.share < _SMALL * len(kernels):
        return "Its kernels are so short that much of it is getting started; larger batches hardly take longer."
    if late > _LATE:
        said, calls = f"It takes {late:.1f} times what the compiler expected", main.samples.shape[1]
        said += f" ({100 * of_flops:.0f} % of the peak{winograd})" if winograd else ""
        if busy:
            return f"{said}, but other programs took part of the machine; measure again."
        if calls < _ENOUGH:
            return f"{said}, but {calls} calls are too few to rely on; measure {_ENOUGH} at least."
        if 0 < main.rival / threads < main.share:
            return f"{said}; `hybridize(tune=True)` measures which of several kernels is fastest here."
        return f"{said}, and no other kernel is known to be faster."
    expected = f"It takes {'less than' if 0 < late < 1 / _LATE else 'about'} what the compiler expected"
    if of_bytes > 1:
        return f"{expected}; much of its data was in caches: it moves {of_bytes:.1f} times what the memory could."
    return f"{expected}, {100 * max(of_flops, of_bytes):.0f} % of what the machine can."
