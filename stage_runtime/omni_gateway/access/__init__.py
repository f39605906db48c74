"""Who may use the gateway, and how much: API keys with limits of their own, for both APIs."""
