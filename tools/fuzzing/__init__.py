"""Broken and odd configurations, tables and model files, and what the program makes of them.

    .venv/bin/python -m tools.fuzzing --cases 2000 --seed 0

Every case has to end within its time, without a traceback, with exit code 0, 1 or 2, and, where it fails, with a
message that names what is at fault. A model file that was changed is refused, or predicts the same.
"""
