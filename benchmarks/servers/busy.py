"""A process that is busy at random moments, as a helper beside a server: up to a second on, up to 2 s off."""

import random
import time

draw = random.Random(3)
while True:
    end = time.monotonic() + draw.random()  # noqa: TID251 - a program of its own
    while time.monotonic() < end:  # noqa: TID251
        sum(range(1000))
    time.sleep(2 * draw.random())
