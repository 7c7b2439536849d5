"""Adaptive Neural Compilation (Bunel, Desmaison, Mudigonda, Kohli, Torr; NIPS 2016).

A program is compiled to the weights of a differentiable register machine, and gradient descent on the data of a task
turns it into a program that is faster on such data.
"""
