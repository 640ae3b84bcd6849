"""Algorithms that advance Markov chains. Free of JAX until they draw."""

from sampler.mcmc.algorithm import Algorithm, Chain, ChainSettings, OnChunk, Snapshot


class ChainAlgorithm(Algorithm):
    """An algorithm that advances chains side by side; it has to define `chain`."""

    def chain(self, space, settings: ChainSettings) -> Chain:
        """The chain that is advanced in one run."""
        raise NotImplementedError

    def draw(
        self, space, settings: ChainSettings, on_chunk: OnChunk, resume: Snapshot | None = None
    ) -> None:
        from sampler.mcmc.chains import advance_chains

        chain = self.chain(space, settings)
        advance_chains(space, chain, self.summed, settings, on_chunk, resume)


class StepAlgorithm(ChainAlgorithm, Chain):
    """An algorithm that is the chain itself; it has to define `step`."""

    def chain(self, space, settings: ChainSettings) -> Chain:
        return self
