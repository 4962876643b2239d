"""The fault matrix: what may befall a training or a translator, a number each, and what must come of it.

The numbers in the names of the tests are those of the table in the README. `pytest` runs the quick part of them,
`pytest -m faults` the rest.
"""
