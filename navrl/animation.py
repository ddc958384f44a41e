"""Evaluation episodes as an animated GIF whose camera never moves or zooms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from navrl.files import replacing
from navrl.metrics.geometry import touching
from navrl.metrics.trajectories import Trajectories

PANEL = 240  # pixels a side of one episode
SCALE = 3  # drawn this much larger and reduced, for smooth edges
MILLISECONDS = 100  # a frame; mpe2's step is 0.1 s
MAX_FRAMES = 500  # of a longer episode every k-th step is drawn: all frames are in memory at once
AGENT_COLOURS = ["#3b6fb6", "#c1553b", "#3f9150", "#8a56a8", "#b8862b", "#2f9aa0", "#a8466f", "#6b6b6b"]
GOAL_COLOUR = "#222222"
CONTACT_COLOUR = "#e02020"


def write_animation(trajectories: Trajectories, path: Path | str) -> None:
    """All given episodes side by side, one frame a step (see MAX_FRAMES), to ``path`` (GIF); whole or not at all.

    The view is one square for all frames: [−1, 1]² widened to what is ever reached, so goals keep their pixels.
    Agents in contact are ringed in red. Raises ValueError where the task has no positions.
    """
    if trajectories.agent_pos is None:
        raise ValueError("this task does not say where its agents are; there is nothing to draw")
    agents = trajectories.agent_pos
    goals = trajectories.goal_pos if trajectories.num_goals else np.zeros((len(agents), agents.shape[1], 0, 2))
    margin = float(trajectories.agent_radii.max())
    reach = max(1.0, float(np.abs(agents).max()), float(np.abs(goals).max(initial=0.0))) + margin
    columns = min(4, trajectories.num_episodes)
    rows = -(-trajectories.num_episodes // columns)
    frames = [
        _frame(agents[t], goals[t], trajectories.agent_radii, trajectories.goal_radius, reach, columns, rows)
        for t in range(0, len(agents), -(-len(agents) // MAX_FRAMES))
    ]
    with replacing(path) as temporary:
        frames[0].save(
            temporary, format="GIF", save_all=True, append_images=frames[1:], duration=MILLISECONDS, loop=0, disposal=1
        )


def _frame(agents, goals, radii, goal_radius, reach: float, columns: int, rows: int) -> Image.Image:
    """One moment of every episode: agents ``[E, N, 2]``, goals ``[E, G, 2]``."""
    side = PANEL * SCALE
    image = Image.new("RGB", (columns * side, rows * side), "white")
    draw = ImageDraw.Draw(image)
    per_unit = side / (2 * reach)
    in_contact = touching(agents, radii)

    for episode in range(len(agents)):
        left, top = (episode % columns) * side, (episode // columns) * side
        draw.rectangle([left, top, left + side - 1, top + side - 1], outline="#cccccc", width=SCALE)

        def disc(position, radius, **style) -> None:
            x, y = left + (position[0] + reach) * per_unit, top + (reach - position[1]) * per_unit
            draw.ellipse([x - radius, y - radius, x + radius, y + radius], **style)

        for index, position in enumerate(agents[episode]):
            ring = CONTACT_COLOUR if in_contact[episode, index] else "white"
            colour = AGENT_COLOURS[index % len(AGENT_COLOURS)]
            disc(position, radii[index] * per_unit, fill=colour, outline=ring, width=2 * SCALE)
        for position in goals[episode]:
            disc(position, (goal_radius or 0.05) * per_unit, outline=GOAL_COLOUR, width=SCALE)
            disc(position, 0.02 * per_unit, fill=GOAL_COLOUR)
    return image.resize((columns * PANEL, rows * PANEL), Image.LANCZOS)
