// Command outbox adds the timers that an application has written to its table outbox, and deletes
// their rows. Any number of them may run, and each may be killed at any time.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lib/pq"

	"carillon/client"
)

const most = 500 // rows in one transaction; a batch has up to 1,000

func main() {
	once := flag.Bool("once", false, "end when the outbox is empty")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	nodes := strings.Split(os.Getenv("CARILLON_URL"), ",")
	carillon, err := client.New(nodes, client.Options{Token: os.Getenv("CARILLON_TOKEN")})
	if err != nil {
		log.Fatal(err)
	}
	for ctx.Err() == nil {
		sent, refused, err := relay(ctx, db, carillon)
		if err != nil {
			log.Print(err)
		}
		if sent > 0 {
			fmt.Println("rows sent:", sent)
		}
		if refused > 0 {
			fmt.Println("rows refused:", refused)
		}
		if sent+refused > 0 {
			continue
		}
		if *once && err == nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// batch is the rows of one topic, in order.
type batch struct {
	rows []int64
	ops  []client.Op
}

// relay adds some timers and then deletes their rows. A crash between the two repeats the adds,
// which changes nothing: ids and times are those of the rows.
func relay(ctx context.Context, db *sql.DB, carillon *client.Client) (sent, refused int, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = tx.Rollback() }() // nothing after a commit
	batches, err := read(ctx, tx)
	if err != nil {
		return 0, 0, err
	}
	for topic, b := range batches {
		problems, err := send(ctx, carillon, topic, b.ops)
		if err != nil {
			return 0, 0, fmt.Errorf("topic %s: %w", topic, err)
		}
		var done []int64
		for i, p := range problems {
			switch {
			case p == nil:
				done = append(done, b.rows[i])
			case p.Retryable:
				err = p
			default: // somebody has to look at it
				_, err = tx.ExecContext(ctx, "UPDATE outbox SET error = $2 WHERE seq = $1", b.rows[i], p.Error())
			}
			if err != nil {
				return 0, 0, err
			}
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM outbox WHERE seq = ANY($1)", pq.Array(done)); err != nil {
			return 0, 0, err
		}
		sent += len(done)
		refused += len(b.rows) - len(done)
	}
	return sent, refused, tx.Commit()
}

// send adds timers, and returns for each why it was refused, or nil. Of a batch that is refused as
// a whole the halves are sent, so that one row does not hold up the others.
func send(ctx context.Context, carillon *client.Client, topic string, ops []client.Op) (problems []*client.Problem, err error) {
	results, err := carillon.Batch(ctx, topic, ops, true)
	for _, r := range results {
		problems = append(problems, r.Problem)
	}
	p, refused := errors.AsType[*client.Problem](err)
	if !refused || !slices.Contains([]int{400, 404, 413, 422}, p.Status) {
		return problems, err
	}
	if len(ops) == 1 {
		return []*client.Problem{p}, nil
	}
	for half := range slices.Chunk(ops, (len(ops)+1)/2) {
		more, err := send(ctx, carillon, topic, half)
		if err != nil {
			return nil, err
		}
		problems = append(problems, more...)
	}
	return problems, nil
}

// read locks rows that no other relay has, by topic.
func read(ctx context.Context, tx *sql.Tx) (batches map[string]*batch, err error) {
	rows, err := tx.QueryContext(ctx, `SELECT seq, topic, id, due, payload FROM outbox WHERE error IS NULL ORDER BY seq LIMIT $1 FOR UPDATE SKIP LOCKED`, most)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	batches = map[string]*batch{}
	for rows.Next() {
		var seq int64
		var topic string
		var spec client.Spec
		var payload []byte
		if err := rows.Scan(&seq, &topic, &spec.ID, &spec.At, &payload); err != nil {
			return nil, err
		}
		spec.Payload = json.RawMessage(payload)
		if batches[topic] == nil {
			batches[topic] = &batch{}
		}
		b := batches[topic]
		b.rows, b.ops = append(b.rows, seq), append(b.ops, client.AddOp(spec))
	}
	return batches, rows.Err()
}
