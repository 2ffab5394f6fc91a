"""The session rule as a table: what is asked of which worker, who runs it, what is answered, who holds what after it.

Each line of the contract is a case or several; `python -m tests.conformance` plays and prints them.
"""

from __future__ import annotations

from conformance import cases_agent, cases_bodies, cases_cookies, cases_life, cases_new, cases_websockets

CASES = [
    *cases_cookies.CASES,
    *cases_bodies.CASES,
    *cases_new.CASES,
    *cases_life.CASES,
    *cases_agent.CASES,
    *cases_websockets.CASES,
]
