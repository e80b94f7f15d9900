"""Fast paths of the models' computations: kernels, their contracts, and the choice among them.

Checkpoints carry the files of models but not this folder, so layers import from it inside `try`. Functions that layers
call must keep their arguments and results, as older checkpoints call them; a changed function needs a new name.
"""
