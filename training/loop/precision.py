"""What a run says where a CPU gains nothing by `mixed_precision: bf16`."""

from onlstm_hf.fast.precision import bfloat16_speed


def bfloat16_notice() -> str | None:
    """What to tell the user of a run in bfloat16 on this CPU where float32 is as fast, and `None` where it is not."""
    speed = bfloat16_speed()
    if speed > 1:
        return None
    return (
        f"mixed_precision is bf16, but this CPU multiplies matrices in it at {speed:.2g} times the speed of float32 "
        "(measured just now, in one thread). Pass --mixed_precision no: it is likely to be faster here, needs more "
        "memory for activations, and the weights differ from a bf16 run's by rounding."
    )
