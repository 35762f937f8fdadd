// Command etcd is a yardstick of the benchmarks: clients of an etcd cluster that put values one
// after the other, each waiting for its answer. It prints puts per second and the latency of a put.
//
//	etcd ADDR,ADDR,… CLIENTS SECONDS
//
// A put is a call of gRPC, made here by net/http alone, which costs less than etcd's own client
// does. The clients of one member share a connection, since that costs etcd less than a connection
// for each.
package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	keyBytes   = 30
	valueBytes = 200
	timeout    = 30 * time.Second
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 4 {
		log.Fatal("usage: etcd ADDR,ADDR,… CLIENTS SECONDS")
	}
	addrs := strings.Split(os.Args[1], ",")
	clients, err1 := strconv.Atoi(os.Args[2])
	seconds, err2 := strconv.Atoi(os.Args[3])
	if err1 != nil || err2 != nil || clients < 1 || seconds < 1 {
		log.Fatal("etcd: CLIENTS and SECONDS are whole numbers above 0")
	}
	members := make([]*http.Client, len(addrs))
	for i := range members {
		var plain http.Protocols
		plain.SetUnencryptedHTTP2(true)
		members[i] = &http.Client{Timeout: timeout, Transport: &http.Transport{Protocols: &plain}}
	}
	took := make([][]time.Duration, clients)
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			var err error
			if took[i], err = puts(members[i%len(addrs)], addrs[i%len(addrs)], end); err != nil {
				log.Fatal("etcd: ", err)
			}
		})
	}
	running.Wait()
	all := slices.Sorted(slices.Values(slices.Concat(took...)))
	fmt.Printf("%d clients: %d puts, %d puts/s, p50 %.2f p99 %.2f ms\n",
		clients, len(all), len(all)/seconds, ms(all[len(all)/2]), ms(all[len(all)*99/100]))
}

// puts puts random keys to one member until the end, and returns how long each took.
func puts(member *http.Client, addr string, end time.Time) ([]time.Duration, error) {
	var took []time.Duration
	message := newMessage()
	for {
		began := time.Now()
		if began.After(end) {
			return took, nil
		}
		copy(message[keyAt:], fmt.Sprintf("timer-%024d", rand.Uint64()))
		if err := put(member, addr, message); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
}

// keyAt is where the key of a message begins: behind gRPC's five bytes, a tag and a length.
const keyAt = 7

// newMessage is a PutRequest as gRPC sends it: not compressed, its length, then the key (field 1)
// and the value (2).
func newMessage() []byte {
	m := []byte{0, 0, 0, 0, 0, 1<<3 | 2, keyBytes}
	m = append(m, make([]byte, keyBytes)...)
	m = append(m, 2<<3|2)
	m = binary.AppendUvarint(m, valueBytes)
	m = append(m, bytes.Repeat([]byte{'x'}, valueBytes)...)
	binary.BigEndian.PutUint32(m[1:], uint32(len(m)-5))
	return m
}

func put(member *http.Client, addr string, message []byte) error {
	req, err := http.NewRequest(http.MethodPost, "http://"+addr+"/etcdserverpb.KV/Put", bytes.NewReader(message))
	if err != nil {
		return err
	}
	req.Header["Content-Type"] = []string{"application/grpc"}
	req.Header["Te"] = []string{"trailers"}
	resp, err := member.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if status := resp.Trailer.Get("Grpc-Status"); status != "0" {
		return fmt.Errorf("%s answered %s, status %q: %s", addr, resp.Status, status, resp.Trailer.Get("Grpc-Message"))
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }
