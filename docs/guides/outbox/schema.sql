-- Timers that were not added yet. A row is written in the transaction of what it belongs to.
CREATE TABLE outbox (
  seq     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  topic   text        NOT NULL,
  id      text        NOT NULL, -- the application's own, so that an add may be repeated
  due     timestamptz NOT NULL CHECK (isfinite(due)), -- absolute, for the same reason
  payload json        NOT NULL,
  error   text                  -- why it was refused for good; null: not yet sent
);
