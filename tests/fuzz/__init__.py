"""Fuzzing: thousands of seeded inputs for everything that reads what others wrote. Run with `-m slow`.

Each input works, or ends in one of the program's own errors, within bounded time and memory. An input depends on the
name of its test and its number alone, so a failure names what repeats it: see `harness.survive`.
"""
