"""What models are evaluated on: columns of data sets, and minimal pairs."""
