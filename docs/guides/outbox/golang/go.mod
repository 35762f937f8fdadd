module example.org/outbox

go 1.26.0

require (
	carillon/client v0.0.0
	github.com/lib/pq v1.12.3
)

replace carillon/client => ../../../../client
