package ring

// Strike changes one bit of a state in memory, as a failing machine would: of a topic, or of the
// sum over all. It is for tests and simulation, and says whether it has.
func (s *State) Strike(topic string, ofTopic bool, bit uint) bool {
	s.Topics.mu.Lock()
	defer s.Topics.mu.Unlock()
	if !ofTopic {
		s.sum ^= 1 << (bit % 64)
		return true
	}
	t := s.byName[topic]
	if t == nil {
		return false
	}
	t.CreatedMs ^= 1 << (bit % 40)
	return true
}
