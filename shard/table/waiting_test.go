package table

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"carillon/timer"
)

type countedQueue struct {
	QueuePlace
	timers int
	order  *DueOrder
}

func (q *countedQueue) Count(by int)        { q.timers += by }
func (q *countedQueue) DueOrder() *DueOrder { return q.order }

// TestDueOrder: the number of timers in some queues and the oldest of them are those of a walk, as
// timers come, go, change queues, and are due at other times.
func TestDueOrder(t *testing.T) {
	const timers, nowMs = 4000, 1 << 20
	var orders [2]DueOrder
	queues := [...]*countedQueue{{order: &orders[0]}, {order: &orders[0]}, {order: &orders[1]}}
	table := &timetable{}
	var in [timers + 1]*countedQueue
	var due [timers + 1]int64
	random := rand.New(rand.NewPCG(1, 2))
	for step := range 100_000 {
		h := 1 + random.IntN(timers)
		if most := 4 + step/20_000%2*(timers-4); h > most { // the orders shrink and grow
			in[h] = nil
			table.WaitIn(timer.Handle(h), nil, 0)
		} else if n := random.IntN(4); n == 3 {
			in[h] = nil
			table.WaitIn(timer.Handle(h), nil, 0)
		} else {
			in[h], due[h] = queues[n], random.Int64N(1000)
			table.WaitIn(timer.Handle(h), queues[n], due[h])
		}
		if step%50 != 0 {
			continue
		}
		var counts [len(queues)]int
		var oldest [len(orders)]int64
		for h, q := range in {
			for i := range queues {
				if q == queues[i] {
					counts[i]++
					oldest[i/2] = max(oldest[i/2], nowMs-due[h])
				}
			}
		}
		for i := range orders {
			if n, ms := orders[i].Overdue(nowMs); int(n) != orders[i].Len() || ms != oldest[i] {
				t.Fatalf("step %d: %d timers, the oldest waits for %d ms, want %d", step, n, ms, oldest[i])
			}
		}
		for i, q := range queues {
			if q.timers != counts[i] {
				t.Fatalf("step %d: queue %d has %d timers, want %d", step, i, q.timers, counts[i])
			}
		}
		if a, b := orders[0].Len(), orders[1].Len(); a != counts[0]+counts[1] || b != counts[2] || table.queued.waiting != a+b {
			t.Fatalf("step %d: %d and %d timers, want %v", step, a, b, counts)
		}
	}
}

// TestQueueNumbers: numbers of queues in which no timer waits are given to others, and one that a
// queue had in another table, or before all were forgotten, is not taken for its own.
func TestQueueNumbers(t *testing.T) {
	var order DueOrder
	one, other := &timetable{}, &timetable{}
	var queues [1000]countedQueue
	for i := range queues {
		queues[i].order = &order
		one.WaitIn(1, &queues[i], 0)
		if queues[i].timers != 1 || i > 0 && queues[i-1].timers != 0 {
			t.Fatalf("queue %d has %d timers", i, queues[i].timers)
		}
	}
	if n := len(one.queued.queues); n > 3 {
		t.Errorf("%d numbers for one timer", n)
	}
	last := &queues[len(queues)-1]
	other.WaitIn(1, &countedQueue{order: new(DueOrder)}, 0)
	other.WaitIn(2, last, 0)
	one.WaitIn(1, nil, 0)
	if last.timers != 1 || other.queued.waiting != 2 || one.queued.waiting != 0 {
		t.Errorf("%d timers wait in the queue, %d and %d in the tables", last.timers, other.queued.waiting, one.queued.waiting)
	}
	one.ForgetQueues()
	one.WaitIn(5, &countedQueue{order: &order}, 0)
	one.WaitIn(6, last, 0)
	one.WaitIn(6, nil, 0)
	if last.timers != 1 || order.Len() != 2 {
		t.Errorf("%d timers wait in the queue, %d in the order", last.timers, order.Len())
	}
}

// TestQueuesThatAreOver: when nothing waits any more, what many queues took is given back.
func TestQueuesThatAreOver(t *testing.T) {
	var order DueOrder
	one := &timetable{}
	queues := make([]countedQueue, 100_000)
	for i := range queues {
		queues[i].order = &order
		one.WaitIn(timer.Handle(i+1), &queues[i], 0)
	}
	many := one.queued.memory()
	for i := range queues {
		one.WaitIn(timer.Handle(i+1), nil, 0)
	}
	if left := one.queued.memory(); left > many/10 {
		t.Errorf("%d bytes while they wait, %d after that", many, left)
	}
	one.WaitIn(7, &queues[9], 0)
	if queues[9].timers != 1 || order.Len() != 1 {
		t.Errorf("%d timers wait in the queue, %d in the order", queues[9].timers, order.Len())
	}
}

// TestWaitingTimersHaveNoPointers: the collector follows none, however many timers wait.
func TestWaitingTimersHaveNoPointers(t *testing.T) {
	part := reflect.TypeFor[queuedPart]()
	for i := range part.NumField() {
		if of := part.Field(i).Type.Elem().Kind(); of != reflect.Uint32 {
			t.Errorf("%s has elements of kind %s", part.Field(i).Name, of)
		}
	}
	if part.Size() != 512 {
		t.Errorf("a part has %d bytes", part.Size())
	}
}
