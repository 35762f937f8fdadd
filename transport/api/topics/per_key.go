package topics

import (
	"carillon/timer"
	"carillon/transport/api/web"
)

var PerKeyFieldNames = []string{"concurrency", "rate", "fair"}

const maxKeyConc = 65_536

func readPerKey(r *web.Reader, base *timer.PerKey) *timer.PerKey {
	k := timer.PerKey{Fair: true}
	if base != nil {
		k = *base
	}
	given := r.Object("per_key", PerKeyFieldNames, func(i int) {
		switch {
		case i == 0 && !reset(r, &k.Concurrency, 0):
			k.Concurrency = int(r.Ranged("per_key.concurrency", 1, maxKeyConc))
		case i == 1 && !reset(r, &k.Rate, timer.Rate{}):
			k.Rate = readRate(r, "per_key.rate", k.Rate)
		case i == 2 && !reset(r, &k.Fair, true):
			k.Fair = r.Boolean("per_key.fair")
		}
	})
	if given == 0 && r.Err() == nil {
		r.Reject(r.OutOfRange("per_key: give concurrency, rate or fair"))
	}
	return &k
}

func perKeyMembers(o *web.Object, k *timer.PerKey) {
	o.OptInteger("concurrency", int64(k.Concurrency))
	appendRate(o, k.Rate)
	o.Boolean("fair", k.Fair)
}
