package wal

// poison records the first failure and gives it to all that wait.
func (s *Stream) poison(rest []waiting, err error) error {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	err = s.err
	queued := s.queue
	s.queue = nil
	s.mu.Unlock()
	s.failAll(rest, err)
	s.failAll(queued, err)
	return err
}

func (s *Stream) failAll(list []waiting, err error) {
	for i := range list {
		if list[i].done != nil {
			list[i].done(Position{}, err)
		}
		list[i] = waiting{}
	}
}

// Err returns the failure that poisoned the stream, or nil.
func (s *Stream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
