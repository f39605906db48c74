"""What will run where: from a configuration to processes, devices and environments.

Pure: planning starts, binds and writes nothing.
"""
