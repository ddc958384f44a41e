"""What simple_spread looks like from outside: shared by mpe2's own and by the batched version.

Sizes and radii are those of mpe2's ``simple_spread`` (``Scenario.observation``, ``Scenario.make_world``).
"""

from __future__ import annotations

from envs.base import EntityGroup, Geometry, ObservationLayout

AGENT_RADIUS = 0.15
CAPTURE_RADIUS = 0.1  # task units; positions start in [-1, 1]^2
OWN_SIZE = 4  # velocity, position
COMMUNICATION_SIZE = 2  # World.dim_c; always zero, for the agents are silent


def layout(
    num_agents: int, num_agent_neighbors: int | None = None, num_landmark_neighbors: int | None = None
) -> ObservationLayout:
    """Slices of one agent's observation: velocity, position, landmarks, other agents, their communication.

    ``num_*_neighbors``: entities observed, nearest first, zero-padded where more than exist; None = all.
    """
    landmarks = num_agents if num_landmark_neighbors is None else num_landmark_neighbors
    others = num_agents - 1 if num_agent_neighbors is None else num_agent_neighbors
    landmark_group = EntityGroup(OWN_SIZE, landmarks, 2)
    agent_group = EntityGroup(landmark_group.stop, others, 2)
    return ObservationLayout(
        own=EntityGroup(0, 1, OWN_SIZE),
        landmarks=landmark_group,
        agents=agent_group,
        communication=EntityGroup(agent_group.stop, others, COMMUNICATION_SIZE),
        padded=landmarks > num_agents or others > num_agents - 1,
        square=True,
    )


def geometry(num_agents: int) -> Geometry:
    """Equal agents; as many landmarks; any agent covers any landmark; all covered = success."""
    return Geometry(
        agent_radii=(AGENT_RADIUS,) * num_agents,
        num_goals=num_agents,
        goal_radius=CAPTURE_RADIUS,
        has_success=True,
    )
