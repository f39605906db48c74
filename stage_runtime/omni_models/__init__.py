"""The models omnipipe serves, one package each.

`topology` and `routing` of a model are pure and light; the stages beside them may import torch and
sglang, and are imported only by the process group that runs them.
"""
