"""Notice for runs in bf16 on a CPU that is not faster in it."""

from onlstm_hf.fast.precision import bfloat16_speed


def bfloat16_notice() -> str | None:
    """Returns a notice if this CPU is not faster in bfloat16 than in float32, else `None`."""
    speed = bfloat16_speed()
    if speed > 1:
        return None
    return (
        f"mixed_precision is bf16, but this CPU multiplies matrices in it at {speed:.2g} times the speed of float32 "
        "(measured just now, in one thread). Pass --mixed_precision no: it is likely to be faster here, needs more "
        "memory for activations, and the weights differ from a bf16 run's by rounding."
    )
