"""Conversations for chat templates: plain, with a system message, with tools, in parts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

NOW = datetime(2024, 7, 26, 12, 0)

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get <the> weather & more",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "The city", "enum": ["Zürich"]},
                    "days": {"type": "integer"},
                },
                "required": ["city"],
            },
        },
    }
]

_CALL = {
    "id": "abcdef123",
    "type": "function",
    "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}},
}

CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "plain": [{"role": "user", "content": "Hello, who are you?"}],
    "system": [
        {"role": "system", "content": "  You are <b>kind</b>.\n"},
        {"role": "user", "content": " Hi  there \n\n"},
        {"role": "assistant", "content": "<think>\nhm</think>\n\nHello!"},
        {"role": "user", "content": "日本語 😀 & \"q\" 'a' {{ x }} {% if %}"},
    ],
    "tool": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather in Zürich?"},
        {"role": "assistant", "content": None, "tool_calls": [_CALL]},
        {"role": "tool", "content": '{"t": 21}', "tool_call_id": "abcdef123"},
        {"role": "assistant", "content": "21 degrees."},
        {"role": "user", "content": "Thanks"},
    ],
    "parts": [
        {
            "role": "user",
            "content": [{"type": "text", "text": "Part one"}, {"type": "text", "text": " two"}],
        }
    ],
    "empty": [{"role": "user", "content": ""}],
}
