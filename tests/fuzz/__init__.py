"""Fuzzing: thousands of seeded inputs for everything that reads foreign files or requests. Run with `-m slow`.

Each input works, or ends in one of the program's own errors, within bounded time and memory. An input depends on the
name of its test and its number alone, so a failure can be repeated: see `harness.survive`.
"""
