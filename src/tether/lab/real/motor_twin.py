"""Motor, re-wound: the same motor until half of the run, then another winding that nobody declared."""

from dataclasses import replace

from tether.lab.real import motor

WORLD = replace(motor.WORLD, name="motor-twin", title="Motor, re-wound half-way", cells=("re-wound",))
