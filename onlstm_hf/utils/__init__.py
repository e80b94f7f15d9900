"""Files, results, checkpoints and the code that travels with them: what every other folder may use."""
