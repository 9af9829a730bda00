"""Do probes, intervals and tests hold what they say? Measured on simulated judges and scores: `make validity`."""
