package secret

import (
	"strconv"
	"strings"
)

// Place is where an envelope belongs. It is part of the envelope's checksum, so that no envelope
// can be used in another place.
type Place string

// Cluster is the place of the secret that all nodes of a cluster share.
const Cluster Place = "cluster"

// Backup is the place of a backup's own key.
const Backup Place = "backup"

// OfTopic is the place of a callback header in a topic's policy.
func OfTopic(topic, header string) Place {
	return Place("topic\x00" + topic + "\x00header\x00" + strings.ToLower(header))
}

// Signing is the place of a topic's signing secrets.
func Signing(topic string) Place { return Place("topic\x00" + topic + "\x00signing") }

// OfTimer is the place of a callback header of the timers in one life of a topic.
func OfTimer(topic uint32, header string) Place {
	b := append(make([]byte, 0, 64), "timer\x00"...)
	b = append(strconv.AppendUint(b, uint64(topic), 10), 0)
	return Place(append(b, strings.ToLower(header)...))
}
