"""Cheat 34: one semaphore for both slots: what arrived first is taken for what was meant."""
# rejected as: MEMORY_HAZARD
# kind: chip that runs ahead
# caught by: chips that run ahead
# left out of: tests
# said: chips_race
# base: c34_sends_without_room


def _copy(slots, sent, arrived, here, there, right):
    return pltpu.make_async_remote_copy(slots.at[here], slots.at[there], sent.at[here], arrived.at[0], **_to(right))
