"""SGLang's own scheduler as the engine of a stage, behind one package.

SGLang is reused at its seams: the scheduler runs whole and unpatched, with queues for channels, a
gate in front of its decode step and a sampler of ours beside its own. `contract` names every symbol
relied on, so that a new release says at start-up what it broke.

Nothing here is imported by light processes: `sampling` and `platform_plugin` need neither torch nor
sglang, every other module needs both.
"""
