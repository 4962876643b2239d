"""The fault matrix: numbered faults of a training or a translator, and the required result of each.

The numbers in the names of the tests are those of the table in docs/reliability.md. `pytest` runs the quick part of
them, `pytest -m faults` the rest.
"""
