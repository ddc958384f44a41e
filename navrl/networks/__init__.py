"""Networks: encoders (mlp, entity), the recurrent core, actors, critics, action distributions, value normalisation."""
