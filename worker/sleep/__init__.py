"""The sleep pass: what an idle agent's memory goes through."""
