"""The multi-agent particle environments (Lowe et al. 2017; Mordatch & Abbeel 2018) as batched tensors."""
