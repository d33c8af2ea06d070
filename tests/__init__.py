"""Tests: a twin for every file under unit, real parts under integration, the product's promises, the house itself."""
