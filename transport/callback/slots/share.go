package slots

// How many times the free slots one may have: usually, and when few calls are out.
const (
	factor      = 3
	lightFactor = 7
)

// tenant is a user of topics.
type tenant struct {
	name   string
	calls  counts
	inTurn [classes]ring[*share] // those with something to serve
	turn   [classes]spot[*tenant]
	shares int
	queues int // of its shares
}

// share is one topic's.
type share struct {
	of     Share
	tenant *tenant
	calls  counts
	inTurn [classes]ring[*queue]
	turn   [classes]spot[*share]
	queues int // of waiters, in turn or not
}

// keptShares is how many shares there may be before those that have nothing are
// dropped: most come back at once.
const keptShares = 1000

// shareOf finds or makes a share.
func (s *Slots) shareOf(of Share) *share {
	if sh := s.shares[of]; sh != nil {
		return sh
	}
	t := s.tenants[of.Tenant]
	if t == nil {
		t = &tenant{name: of.Tenant}
		for c := range t.turn {
			t.turn[c].of = t
		}
		s.tenants[of.Tenant] = t
	}
	t.shares++
	sh := &share{of: of, tenant: t}
	for c := range sh.turn {
		sh.turn[c].of = sh
	}
	s.shares[of] = sh
	return sh
}

// forgetShare drops a share that has nothing, and its tenant with the last one, unless
// there are few.
func (s *Slots) forgetShare(sh *share) {
	if sh.queues > 0 || sh.calls != (counts{}) || len(s.shares) <= keptShares {
		return
	}
	delete(s.shares, sh.of)
	if sh.tenant.shares--; sh.tenant.shares == 0 {
		delete(s.tenants, sh.tenant.name)
	}
}

// free is how many more calls of a class the node may make.
func (s *Slots) free(class Class) int {
	free := s.max[steady] - s.calls[steady]
	for at := range class + 1 {
		free = min(free, s.max[at]-s.calls[at])
	}
	return free
}

// within reports that one with so many calls may have one more of a class: by each bound that
// applies to it.
func (s *Slots) within(calls counts, class Class, factor int) bool {
	for at := range class + 1 {
		free := s.max[at] - s.calls[at]
		if free <= 0 || calls[at] >= factor*free && s.max[steady] >= reserveFrom {
			return false
		}
	}
	return true
}

// may reports that the node has a slot for a topic's call to a destination. One that has few calls
// out may have more of the rest, be it among the topic's destinations or among the tenant's topics.
func (s *Slots) may(sh *share, d *Destination, class Class) bool {
	light, lightest := d.calls < s.few, d.calls < s.few && sh.calls[steady] < s.few
	return s.within(counts{d.calls, d.calls}, class, factor) && s.within(sh.calls, class, factorOf(light)) &&
		(sh.tenant.name == "" || s.within(sh.tenant.calls, class, factorOf(lightest)))
}

func factorOf(light bool) int {
	if light {
		return lightFactor
	}
	return factor
}

// MayOpen reports that a topic may have waiters at one more destination, of at most so many that
// are kept. The free ones are divided as the calls are.
func (s *Slots) MayOpen(of Share, destinations int) bool {
	free := destinations - s.busy
	if free <= 0 || destinations < reserveFrom {
		return free > 0
	}
	sh, t := s.shares[of], s.tenants[of.Tenant]
	return (sh == nil || sh.queues < factor*free) && (t == nil || t.name == "" || t.queues < lightFactor*free)
}
