"""The models: a configuration and a modelling file each, and the files that they share."""
