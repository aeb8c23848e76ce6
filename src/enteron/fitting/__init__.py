"""Calibrations and decoder rules, fitted on studies that did not train the model."""
