"""The schema of posts, and the prompts with their examples by language. Data; `ssop_opinion.prompting` reads it."""
