// Command asynq fills a Redis with tasks as Asynq itself writes them, for the test of the guide
// that migrates them: some wait, some are scheduled, one has failed twice, one is archived.
//
//	asynq ADDRESS
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"time"

	"github.com/hibiken/asynq"
)

func main() {
	redis := asynq.RedisClientOpt{Addr: os.Args[1]}
	client := asynq.NewClient(redis)
	defer client.Close()
	put := func(kind string, payload []byte, options ...asynq.Option) {
		if _, err := client.Enqueue(asynq.NewTask(kind, payload), options...); err != nil {
			log.Fatal(err)
		}
	}
	put("fail", []byte("again"), asynq.TaskID("twice"), asynq.MaxRetry(5))
	put("fail", []byte("never"), asynq.TaskID("archived"), asynq.MaxRetry(0))
	fail(redis)
	put("email:deliver", []byte(`{"user": 7}`), asynq.TaskID("mail-7"), asynq.MaxRetry(3))
	put("image/resize", []byte{0, 1, 255, '\n'}, asynq.TaskID("image-1"), asynq.ProcessIn(time.Hour), asynq.MaxRetry(0))
	put("report", nil, asynq.TaskID("report of may"), asynq.ProcessAt(time.Now().Add(48*time.Hour)), asynq.Deadline(time.Now().Add(50*time.Hour)))
	put("charge", []byte(`{"order":77}`), asynq.Queue("critical"), asynq.TaskID("order-77"), asynq.ProcessIn(2*time.Second), asynq.Unique(time.Hour))
}

// fail has both tasks of the queue fail, the first one twice.
func fail(redis asynq.RedisClientOpt) {
	left := make(chan struct{}, 3)
	server := asynq.NewServer(redis, asynq.Config{
		RetryDelayFunc: func(n int, _ error, _ *asynq.Task) time.Duration {
			if n == 0 {
				return -time.Second // at once
			}
			return time.Hour
		},
		ErrorHandler:             asynq.ErrorHandlerFunc(func(context.Context, *asynq.Task, error) { left <- struct{}{} }),
		DelayedTaskCheckInterval: 100 * time.Millisecond, LogLevel: asynq.FatalLevel,
	})
	if err := server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return errors.New("boom") })); err != nil {
		log.Fatal(err)
	}
	for range cap(left) {
		<-left
	}
	server.Shutdown()
}
