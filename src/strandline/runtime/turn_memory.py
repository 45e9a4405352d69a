"""What the turns of one session have in common, and who answers in them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from strandline.errors import StrandlineError
from strandline.runtime.agent import Agent
from strandline.runtime.assembling import Assembling
from strandline.runtime.compacting import Compactor
from strandline.runtime.engine_session import EngineSession
from strandline.runtime.prefix_watch import PrefixWatch
from strandline.runtime.thoughts import Thoughts
from strandline.transcript.session import Session


@dataclass
class TurnMemory:
    """What the turns of one session remember together, on that session.

    How its contexts are assembled, the compaction in the making, thoughts that were refused,
    what was sent last.
    """

    assembling: Assembling
    compactor: Compactor
    thoughts: Thoughts = field(default_factory=Thoughts)
    watch: PrefixWatch = field(default_factory=PrefixWatch)

    @classmethod
    def of(cls, session: Session, agent: Agent) -> TurnMemory:
        """The memory of a session that nothing is remembered of."""
        compactor = Compactor(session, agent)
        return cls(Assembling(EngineSession(session, agent, compactor)), compactor)

    @property
    def engine(self) -> EngineSession:
        """The context engine on the session."""
        return self.assembling.engine

    @property
    def session(self) -> Session:
        """The transcript, which an engine's compaction may replace."""
        return self.engine.session

    @property
    def agent(self) -> Agent:
        """Who answers, as it is set up now."""
        return self.engine.agent

    def set_up(self, agent: Agent) -> None:
        """From here on the agent is set up like that."""
        self.engine.agent = self.compactor.agent = agent

    def move_to(self, session: Session) -> None:
        """The session goes on in another transcript."""
        self.engine.session = self.compactor.session = session

    def renew_prompt(self) -> bool:
        """Go on with the system prompt of now, where it is another; a disk may be waited for.

        Done where the provider's cache is lost anyway, and what the workspace says now is free.
        """
        agent = self.agent
        if agent.renew_prompt is None:
            return False
        try:
            prompt = agent.renew_prompt()
        except StrandlineError:  # where it cannot be read, the old prompt holds
            return False
        if prompt == agent.system_prompt:
            return False
        self.set_up(replace(agent, system_prompt=prompt))
        return True
