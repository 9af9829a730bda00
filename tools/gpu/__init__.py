"""What a GPU alone can show, in eight minutes: `make gpu`.

bases.py     checkpoints of random weights, at the shape of 7B models or small
parts.py     what is measured
__main__.py  runs the parts, each within its time, and writes the table
"""
