//! Thread priorities.

/// Raises the `nice` value of the calling thread by `steps`, up to Linux' maximum of 19. On other systems, or where the call is refused,
/// it does nothing.
pub fn lower_priority(steps: u8) {
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: reads and changes a number that the system keeps of this thread; 0 stands for the thread that calls.
    unsafe {
        let now = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, now.saturating_add(i32::from(steps)).min(19));
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = steps;
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn a_thread_has_a_priority_of_its_own() {
        // SAFETY: asks for a number.
        let now = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let before = now();
        let there = std::thread::spawn(move || {
            super::lower_priority(5);
            let lower = now();
            super::lower_priority(200);
            (lower, now())
        });
        assert_eq!(there.join().expect("no panic"), ((before + 5).min(19), 19));
        assert_eq!(now(), before);
    }
}
