// Command beanstalk is a yardstick of the benchmarks: connections to a beanstalkd that put delayed
// jobs one after the other, each waiting for its answer. It prints jobs per second and the latency
// of a put.
//
//	beanstalk ADDR CONNECTIONS SECONDS
package main

import (
	"bufio"
	"fmt"
	"log"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const bodyBytes = 200

// job is a put with priority 0, a delay of a year and a time to run of 60 s.
var job = fmt.Sprintf("put 0 %d 60 %d\r\n%s\r\n", 365*24*3600, bodyBytes, strings.Repeat("x", bodyBytes))

func main() {
	log.SetFlags(0)
	if len(os.Args) != 4 {
		log.Fatal("usage: beanstalk ADDR CONNECTIONS SECONDS")
	}
	connections, err1 := strconv.Atoi(os.Args[2])
	seconds, err2 := strconv.Atoi(os.Args[3])
	if err1 != nil || err2 != nil || connections < 1 || seconds < 1 {
		log.Fatal("beanstalk: CONNECTIONS and SECONDS are whole numbers above 0")
	}
	took := make([][]time.Duration, connections)
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	var running sync.WaitGroup
	for i := range connections {
		running.Go(func() {
			var err error
			if took[i], err = puts(os.Args[1], end); err != nil {
				log.Fatal("beanstalk: ", err)
			}
		})
	}
	running.Wait()
	all := slices.Sorted(slices.Values(slices.Concat(took...)))
	fmt.Printf("%d connections: %d jobs/s, p50 %.2f p99 %.2f ms\n", connections, len(all)/seconds, ms(all[len(all)/2]), ms(all[len(all)*99/100]))
}

// puts puts jobs over one connection until the end, and returns how long each took.
func puts(addr string, end time.Time) ([]time.Duration, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	var took []time.Duration
	for {
		began := time.Now()
		if began.After(end) {
			return took, nil
		}
		if _, err := conn.Write([]byte(job)); err != nil {
			return nil, err
		}
		answer, err := answers.ReadString('\n')
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(answer, "INSERTED ") {
			return nil, fmt.Errorf("beanstalkd answered %q", answer)
		}
		took = append(took, time.Since(began))
	}
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }
