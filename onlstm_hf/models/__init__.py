"""The models: a configuration and a modelling file each, and in `recurrent` what they share."""
